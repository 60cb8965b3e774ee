"""`coldstream console`: pages in a browser that show an archive and steer its jobs.

    console_options.py          what may be set
    archive_access.py           the archive, its catalogue, jobs and brokers: what pages are made from
    app.py                      the routes; page_answers.py what every request goes through: who, rights, errors
      sessions.py, change_guard.py, page_headers.py, visitor.py    who may do what, and what no page may
    rendering.py                templates; words.py numbers, sizes and names as pages write them
    pages/                      a module for each page, or a few that belong together
    templates/, static/         Jinja2, one style sheet, htmx as it comes from npm, and a little script

Pages are made on the server and work without JavaScript; htmx only fetches parts of them again. What is shown is taken
for hostile: Jinja2 escapes it, and the Content-Security-Policy permits no inline script or style. Begin
with app.py.
"""
