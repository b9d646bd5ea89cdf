"""The provider of taxes: which one this deployment has (`configured`), how it is asked (`asking`), what is kept (`recording`)."""
