"""What must device classes, resource slices and resource claims (resource.k8s.io) say to be stored?"""
