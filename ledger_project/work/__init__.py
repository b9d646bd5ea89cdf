"""The parts of `manage.py work`: the timetable, and a worker that runs its tasks."""
