"""What an author does at the keyboard; for now the demonstration of the whole way."""
