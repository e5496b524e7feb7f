"""Django, configured once for a process, so that the first test does not decide for the others."""

import django
from django.conf import settings


def configure() -> None:
    if not settings.configured:
        settings.configure(
            ALLOWED_HOSTS=["*"],
            DATABASES={"default": {}},
            ROOT_URLCONF="tests.web.nowhere",
            SECRET_KEY="none",
        )
        django.setup()
