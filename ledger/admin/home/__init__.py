"""The first page, the search on each page, and the pages about the ledger as a whole: month-end, current locks, staff log."""
