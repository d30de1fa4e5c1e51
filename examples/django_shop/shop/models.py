from django.db import models


class Seat(models.Model):
    number = models.IntegerField(unique=True)
    fence = models.BigIntegerField(default=0)
