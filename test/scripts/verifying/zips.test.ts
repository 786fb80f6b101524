import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ring, sealedLog } from '../../support/sweep/life/log.ts'
import { plansOf } from '../../support/sweep/life/steps.ts'
import { packOf } from '../../support/sweep/packs/pack.ts'
import { type End, type ZipEntry as Zipped, zipOf } from '../../support/sweep/packs/zip.ts'
import { allVerifiers } from '../../support/verifiers.ts'

const verify = allVerifiers(t)
const directory = t.testdir()
const file = (bytes: Buffer): string => {
  const path = join(directory, 'pack.zip')
  writeFileSync(path, bytes)
  return path
}

await t.test('a zip that can be read in two ways is not read, by any verifier', async (t) => {
  const keys = ring()
  const [plan] = plansOf(7, 1, [30, 40])
  if (!plan) throw new Error('there is no history')
  const log = sealedLog(plan, keys)
  const entries: readonly Zipped[] = [...packOf(log, 0, log.lines.length)].map(([name, data]) => ({
    name,
    data,
  }))
  const first = entries[0] ?? { name: '', data: Buffer.alloc(0) }
  const readme = (change: object): readonly Zipped[] => [{ ...first, ...change }, ...entries.slice(1)]
  const cases: readonly (readonly [string, readonly Zipped[], End, number])[] = [
    ['as it was', entries, {}, 0],
    ['a file twice', [...entries, first], {}, 9],
    ['a name that leads out', [...entries, { name: '../x', data: first.data }], {}, 9],
    ['another name in front of the bytes', readme({ localName: 'README.txt' }), {}, 9],
    ['an encrypted file', readme({ flags: 1 }), {}, 9],
    ['a method that only some know', readme({ method: 12 }), {}, 9],
    ['another checksum', readme({ crc: 1 }), {}, 9],
    ['bytes that cannot be inflated', readme({ stored: Buffer.alloc(50, 0xff) }), {}, 9],
    ['a size that is too small', readme({ size: 3 }), {}, 9],
    ['a size that is too large', readme({ size: 3_000 }), {}, 9],
    ['two files in one place', [...entries, { ...first, name: 'more.md', isGhost: true, offset: 0 }], {}, 9],
    ['more files than there are', entries, { count: entries.length + 1 }, 9],
    ['fewer files than there are', entries, { count: entries.length - 1 }, 9],
    ['something in front', entries, { before: Buffer.from('#!/bin/sh\n') }, 9],
    ['something behind', entries, { behind: Buffer.from('x') }, 9],
    ['a comment', entries, { comment: Buffer.from('x') }, 9],
  ]
  for (const [name, zipped, end, code] of cases) {
    const said = await verify(file(zipOf(zipped, end)), '--key', log.keys[0]?.vkey ?? '')
    t.equal(said.code, code, `${name}: ${said.err}`)
  }
})
