"""The monthly report. Part of the sample for extractions, with mistakes that a review should find."""

import hashlib
import pickle
import sqlite3
import subprocess

import jinja2
import requests
import yaml


def settings(text):
    # A document of a stranger may name any class.
    return yaml.load(text)


def ships(path, owner):
    with sqlite3.connect(path) as ledger:
        return ledger.execute("select name, tons from ships where owner = '" + owner + "'").fetchall()


def convert(name):
    # The name goes into the shell as it is.
    return subprocess.call("pandoc " + name + ".md -o " + name + ".pdf", shell=True)


def remembered(blob):
    return pickle.loads(blob)


def seal(report):
    return hashlib.md5(report.encode()).hexdigest()


def send(address, template, rows):
    body = jinja2.Template(template).render(rows=rows)
    return requests.post(address, data=body, headers={"X-Seal": seal(body)}, verify=False)
