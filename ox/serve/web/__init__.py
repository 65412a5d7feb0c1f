"""What a person sees of the server with a browser, and the paths that only that page asks for."""
