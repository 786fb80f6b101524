import { crc32, deflateRawSync } from 'node:zlib'
import type { Chooser } from '../edits/edit.ts'
import type { Files } from './pack.ts'
import type { End, ZipEntry } from './zip.ts'

export const entriesOf = (files: Files): readonly ZipEntry[] =>
  [...files].map(([name, data], index) => ({ name, data, method: index % 3 === 0 ? 0 : 8 }))

/** Gives the entries of a zip, and what its end says. */
export type Zipping = (
  entries: readonly ZipEntry[],
  choose: Chooser,
) => readonly [readonly ZipEntry[], End?] | null
const the = (entries: readonly ZipEntry[], name: string, change: object): readonly ZipEntry[] =>
  entries.map((entry) => (entry.name === name ? { ...entry, ...change } : entry))
const any = (entries: readonly ZipEntry[], { one }: Chooser): string =>
  one(entries.filter(({ name, data }) => data.length > 40 && name !== 'SHA256SUMS'))?.name ?? 'rows.csv'
const unicodePath = (name: string, of: string): Buffer => {
  const data = Buffer.concat([Buffer.of(1), Buffer.alloc(4), Buffer.from(of)])
  data.writeUInt32LE(crc32(Buffer.from(name)), 1)
  const head = Buffer.alloc(4)
  head.writeUInt16LE(0x7075, 0)
  head.writeUInt16LE(data.length, 2)
  return Buffer.concat([head, data])
}

/** Zips that no verifier may read. */
export const ZIPS: Readonly<Record<string, Zipping>> = {
  'a name twice': (entries, { one }) => [[...entries, ...[one(entries) ?? []].flat()]],
  'a name that leads out': (entries, { one }) => [
    [
      ...entries,
      { name: one(['../x', '/etc/x', 'C:\\x', 'a/../../x', '..', 'a\\..\\x']) ?? '', data: Buffer.from('x') },
    ],
  ],
  'a name with a NUL': (entries) => [[...entries, { name: 'rows.csv\0x', data: Buffer.from('x') }]],
  'a name of other letters': (entries, { one }) => [
    [...entries, { name: one(['é', 'a b', '\u202e', 'a\nb', '﻿x', '']) ?? '', data: Buffer.from('x') }],
  ],
  'a name in two ways': (entries) => [
    the(entries, 'README.md', { extra: unicodePath('README.md', 'README.txt') }),
  ],
  'another name in front of the bytes': (entries, choose) => [
    the(entries, any(entries, choose), { localName: 'x' }),
  ],
  'an encrypted file': (entries, choose) => [the(entries, any(entries, choose), { flags: 0x801 })],
  'a method that is none': (entries, choose) => [
    the(entries, any(entries, choose), { method: choose.one([1, 9, 12, 14, 93, 95, 99]) }),
  ],
  'a digest that is another': (entries, choose) => [the(entries, any(entries, choose), { crc: 1 })],
  'bytes that cannot be inflated': (entries, choose) => {
    const name = any(entries, choose)
    const data = entries.find((entry) => entry.name === name)?.data ?? Buffer.alloc(0)
    return [the(entries, name, { method: 8, stored: Buffer.alloc(data.length, 0xff) })]
  },
  'bytes that end too early': (entries, choose) => {
    const name = any(entries, choose)
    const data = deflateRawSync(entries.find((entry) => entry.name === name)?.data ?? Buffer.alloc(0))
    return [the(entries, name, { method: 8, stored: data.subarray(0, data.length >> 1) })]
  },
  'a size that is too small': (entries, choose) => {
    const name = any(entries, choose)
    return [the(entries, name, { method: 8, size: 10 })]
  },
  'a size that is too large': (entries, choose) => [
    the(entries, any(entries, choose), { method: 8, size: 1 << 30 }),
  ],
  'a stored file of two sizes': (entries, choose) => {
    const name = any(entries, choose)
    const { data } = entries.find((entry) => entry.name === name) as ZipEntry
    return [the(entries, name, { method: 0, size: data.length - 1 })]
  },
  'a file behind the end': (entries, choose) => [
    the(entries, any(entries, choose), { offset: choose.one([0xfffffff0, 1 << 28, 5]) }),
  ],
  'compressed bytes beyond the end': (entries, choose) => [
    the(entries, any(entries, choose), { compressed: 1 << 28 }),
  ],
  'two files in one place': (entries, choose) => {
    const name = any(entries, choose)
    return [
      [
        ...entries,
        {
          name: 'more.bin',
          data: entries.find((entry) => entry.name === name)?.data ?? Buffer.alloc(0),
          isGhost: true,
          offset: 0,
        },
      ],
    ]
  },
  'fewer files than there are': (entries) => [entries, { count: entries.length - 1 }],
  'more files than there are': (entries) => [entries, { count: entries.length + 1 }],
  'a directory that begins elsewhere': (entries, { one }) => [
    entries,
    { offset: one([0, 7, 0xfffffff]) ?? 0 },
  ],
  'a directory of another size': (entries, { one }) => [entries, { size: one([0, 7, 0xfffffff]) ?? 0 }],
  'a large end that is not there': (entries) => [
    entries,
    { count: 0xffff, size: 0xffffffff, offset: 0xffffffff },
  ],
  'several disks': (entries) => [entries, { disk: 3 }],
  'something behind it': (entries, { one }) => [
    entries,
    { behind: Buffer.from(one(['x', '\0', 'PK\u0005\u0006', '\n'.repeat(99)]) ?? 'x') },
  ],
  'something in front of it': (entries) => [entries, { before: Buffer.from('#!/bin/sh\n') }],
  'an end in a comment': (entries) => [
    entries,
    { comment: Buffer.concat([Buffer.from('PK\u0005\u0006', 'latin1'), Buffer.alloc(30)]) },
  ],
}

const BOMB = deflateRawSync(Buffer.alloc(64 << 20))
const bomb =
  (name: string): Zipping =>
  (entries) => [
    the(entries, name, { method: 8, stored: BOMB, size: 64 << 20, crc: crc32(Buffer.alloc(64 << 20)) }),
  ]

/** Zips that are larger than they look. */
export const BOMBS: Readonly<Record<string, Zipping>> = {
  'an inventory that is a bomb': bomb('inventory.json'),
  'a bomb that lies of its size': (entries) => [
    the(entries, 'rows.ndjson', { method: 8, stored: BOMB, size: 1_000 }),
  ],
}
