"""Compare two scorers pair by pair: is the one a stand-in for the other?"""
