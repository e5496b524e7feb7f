"""The routes, a module for each thing. Each says who may ask, and what is answered."""
