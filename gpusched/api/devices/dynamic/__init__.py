"""What do drivers publish, what do claims request, and what is allocated? The kinds of ``resource.k8s.io`` as entities, whatever version served them."""
