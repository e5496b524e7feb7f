"""Django, set up once for a process: whoever comes first would decide for all others."""

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
