"""The addresses of a Django site that has none."""

urlpatterns: list[object] = []
