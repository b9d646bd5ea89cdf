"""Prints invoices and credit notes as PDFs; a PDF in euro contains an e-invoice."""
