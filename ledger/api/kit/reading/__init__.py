"""From the bytes of a request to values: the head, the body, the query, headers, the page of a list."""
