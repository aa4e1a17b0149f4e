"""What became of gangs in the last weeks? Their lives as records, in a file that costs no decision, and questions to it."""
