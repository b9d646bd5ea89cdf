"""What `manage.py work` is made of: the timetable, and a worker that does its tasks."""
