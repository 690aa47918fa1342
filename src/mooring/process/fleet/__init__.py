"""What `mooring fleet` reads from files and keeps in Kubernetes."""
