from django.urls import path

from shop import views

urlpatterns = [path("seats/<int:number>", views.book)]
