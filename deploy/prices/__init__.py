"""What machines cost the user: list prices, what is newer than those shipped, currency, discounts and commitments."""
