from django.apps import AppConfig


class GraphsConfig(AppConfig):
    name = "webapp.graphs"
    label = "graphs"
