"""Pages about signals: webhooks with what they got, and alerts with the accounts that crossed them."""
