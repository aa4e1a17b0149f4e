"""What goes when its owner or its namespace goes, and what stays as long as it is in use?"""
