"""Documents of questions, one module per subject: light to import, without the code that answers them."""
