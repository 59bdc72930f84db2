from django.apps import AppConfig


class WebappConfig(AppConfig):
    name = "webapp"

    def ready(self) -> None:
        # The task decorators need the application whoever imports them first.
        import webapp.celery  # noqa: F401
