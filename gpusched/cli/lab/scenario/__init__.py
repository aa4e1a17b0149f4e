"""How are scenarios played and their results told? One process or several, as text, JSON or JUnit."""
