"""Which of many configurations is best, over inputs and seeds? Points, the processes that play them, results that stay."""
