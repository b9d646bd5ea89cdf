"""What documents look like: from an invoice or a credit note to a PDF, with an e-invoice inside where it is in euro."""
