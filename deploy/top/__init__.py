"""`headroom top`: a live table of a cluster's nodes, which `headroom up` shows, too."""
