"""`headroom top`: a live table of a cluster's nodes; `headroom up` shows it, too."""
