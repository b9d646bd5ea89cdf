"""Files of banks: their entries are read, and booked as payments of invoices."""
