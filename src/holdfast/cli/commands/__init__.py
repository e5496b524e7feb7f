"""The commands of `holdfast`: a module for each thing that they are about."""
