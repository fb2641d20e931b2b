"""What machines cost the user: list prices that were fetched, currency, discounts and commitments."""
