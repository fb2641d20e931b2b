"""Where nodes come from: what every cloud is asked, and the clouds that can be asked."""
