"""Services about taxes that are asked over the internet: VIES about VAT ids, and Stripe Tax about the taxes of sales."""
