"""How are Go templates rendered as KWOK renders them? Parsed, executed with KWOK's functions, printed as Go prints."""
