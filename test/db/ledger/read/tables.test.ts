import { spawnSync } from 'node:child_process'
import { dirname } from 'node:path'
import t from 'tap'
import { csvLine } from '../../../../db/ledger/read/evidence-tables.ts'
import { exportLine } from '../../../../db/ledger/record/leaf.ts'
import { chainOf, decided } from '../../../support/db/history.ts'
import { PYTHON, withoutPython } from '../../../support/verifiers.ts'

const STARTS = ['=', '+', '-', '@', '＝', '＋', '－', '＠', '\t=', '\r=', '\n=', ' =', '　＝', '"=', '""  @']
const PLACES = ['', 'a;', ';', 'a; ', 'a\t;', '=1;', 'a\u202e;\u200b']
const TEXTS = [
  ...PLACES.flatMap((before) => STARTS.map((start) => `${before}${start}HYPERLINK("https://evil.example")`)),
  ...[
    'gpt-4o',
    'a-b',
    'a=b',
    'x@example.org',
    'a;b',
    "it's",
    '日本語',
    'a\u202eb\u200b\u2066c',
    '\u{e0041}x',
  ],
]

const rows = chainOf(TEXTS.map((model, n) => decided(n + 1, { model, more: { text: model } })))

/** The cells of a line as RFC 4180 has them. */
const cellsOf = (line: string): readonly string[] =>
  [...line.trimEnd().matchAll(/("(?:[^"]|"")*"|[^,]*)(?:,|$)/g)].map(([, cell = '']) =>
    cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell,
  )

t.test(
  'H15: no cell of a table is a formula, whichever character ends a cell, and nothing in it hides',
  (t) => {
    for (const [n, row] of rows.entries()) {
      const line = csvLine(row)
      for (const cell of [...cellsOf(line), ...line.trimEnd().split(/[;\t\r\n]/)]) {
        t.notMatch(cell, /^["\s]*[=+\-@＝＋－＠]/, `row ${n}`)
        t.notMatch(cell, /[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]/u, `row ${n}`)
      }
      t.same(
        JSON.parse(cellsOf(line)[13] ?? '').authority,
        JSON.parse(row.detail).authority,
        'it is still JSON',
      )
    }
    t.ok(
      rows.some((row) => csvLine(row).includes(',a;b,')),
      'what is no formula is as it was',
    )
    t.end()
  },
)

t.test(
  'a table of either form is what the verifier that is written from the documents makes of it',
  { skip: withoutPython },
  (t) => {
    const program = `
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("verify", sys.argv[1])
verify = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(verify)
rows = [verify.READ.decode(line) for line in json.load(open(0, encoding="utf-8"))]
for form in (1, 2):
    for row in rows:
        sys.stdout.buffer.write((",".join(verify.cell(row, name, form) for name in verify.CSV) + "\\r\\n").encode())
`
    const { stdout, stderr } = spawnSync('python3', ['-c', program, PYTHON], {
      input: JSON.stringify(rows.map((row) => exportLine(row))),
      cwd: dirname(PYTHON),
      encoding: 'utf8',
    })
    t.equal(stderr, '')
    t.equal(stdout, [...rows.map((row) => csvLine(row, 1)), ...rows.map((row) => csvLine(row, 2))].join(''))
    t.end()
  },
)
