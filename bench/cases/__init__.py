"""The cases of the bench, in modules named after the rooms of `src/holdfast` and the engines."""
