"""The credit of a customer in money: the rests of credit notes and deposits, what invoices take from them, what is paid out."""
