/** A small project on which a person can try an agent, and tasks that fit it. */

export const SAMPLE_FOLDER = "/sample";

export const SAMPLE_FILES: Readonly<Record<string, string>> = {
  "README.md":
    "# Orders\n\nA shop's orders, and a script that reports the revenue by month.\n\nRun it with `python report.py`.\n",
  "orders.csv":
    "date,customer,product,quantity,price\n2026-01-04,Lin,mug,2,9.50\n2026-01-19,Ada,poster,1,24.00\n2026-02-02,Grace,mug,6,9.50\n2026-02-11,Lin,lamp,1,79.90\n2026-03-08,Ada,lamp,2,79.90\n",
  "report.py":
    'import csv\nfrom collections import defaultdict\n\nrevenue = defaultdict(float)\nfor order in csv.DictReader(open("orders.csv")):\n    month = order["date"][:4]\n    revenue[month] += int(order["quantity"]) * float(order["price"])\n\nfor month, total in sorted(revenue.items()):\n    print(f"{month}: {total:.2f}")\n',
};

export interface Task {
  title: string;
  text: string;
}

export const TASKS: readonly Task[] = [
  {
    title: "Find and fix a bug",
    text: "The script /sample/report.py should report the revenue by month, but reports it by year. Find the bug, fix it, and show me what you changed.",
  },
  {
    title: "Explain a project",
    text: "Read the files in /sample and explain in a few sentences what this project does and how its parts fit together.",
  },
  {
    title: "Write a test",
    text: "Add a test for /sample/report.py. Move what needs testing into a function first, if that helps.",
  },
];
