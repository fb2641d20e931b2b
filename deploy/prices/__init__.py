"""The user's prices of machines: fetched list prices, currency, discounts and commitments."""
