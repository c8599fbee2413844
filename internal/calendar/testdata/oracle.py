# Reads lines {"cron": text, "start": seconds} and prints the next five ticks of each on
# the wall clock, as lines of JSON. An expression with six fields has its seconds first.
import datetime
import json
import sys

from croniter import CroniterBadDateError, croniter

epoch = datetime.datetime(1970, 1, 1)
for line in sys.stdin:
    case = json.loads(line)
    fields = case["cron"].split()
    if len(fields) == 6:  # croniter has the seconds last
        fields = fields[1:] + fields[:1]
    begin = epoch + datetime.timedelta(seconds=case["start"])
    ticks = croniter(" ".join(fields), begin)
    try:
        print(json.dumps([int((ticks.get_next(datetime.datetime) - epoch).total_seconds()) for _ in range(5)]))
    except CroniterBadDateError as e:
        print(e)
