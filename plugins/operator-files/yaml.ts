import {
  type Document,
  isAlias,
  isCollection,
  isMap,
  isNode,
  isScalar,
  LineCounter,
  type Node,
  type ParsedNode,
  parseDocument,
  visit,
} from 'yaml'
import { messageOf } from '../../db/support/error-message.ts'
import { FILE_START, type FileFault, type FilePosition } from './config-error.ts'
import { type EnvironmentVariables, expandReferences } from './expand.ts'

export type YamlPath = readonly PropertyKey[]

export interface OperatorYaml {
  /** The whole file as a plain object, references expanded. */
  readonly value: Readonly<Record<string, unknown>>
  /** Returns the place of the value at `path`; if nothing stands there, of the nearest value around it. */
  readonly positionOf: (path: YamlPath) => FilePosition
  /** Returns the place of the key at the end of `path`. */
  readonly positionOfKey: (path: YamlPath) => FilePosition
  readonly has: (path: YamlPath) => boolean
  readonly written: (path: YamlPath) => string | undefined
}

/** A collection may be repeated by aliases this often in all. */
const MAX_ALIASES = 64

/**
 * Reads one operator file: YAML 1.2, one document, a map with string keys, no key twice, no tags, aliases
 * bounded. References in values are expanded, except in `plugin`. Adds every mistake to `faults`. Returns
 * null if nothing can be read from the file.
 */
export function readOperatorYaml(
  text: string,
  env: EnvironmentVariables,
  faults: FileFault[],
): OperatorYaml | null {
  const lines = new LineCounter()
  const at = (offset: number): FilePosition => positionAt(lines, offset)
  const document = parseDocument(text, {
    version: '1.2',
    schema: 'core',
    lineCounter: lines,
    prettyErrors: false,
    stringKeys: true,
    merge: false,
    resolveKnownTags: false,
    // Not `silent`: then the parser drops every document after the first without an error.
    logLevel: 'error',
  })
  for (const { pos, message } of [...document.errors, ...document.warnings])
    faults.push({ ...at(pos[0]), message })
  if (faults.length > 0) return null
  if (!isMap(document.contents)) {
    const message = 'must be a map of options that begins with plugin: NAME'
    faults.push({ ...at(startOf(document.contents)), message })
    return null
  }
  expandScalars(document, env, (node, message) => faults.push({ ...at(startOf(node)), message }))
  const value = plainOptions(document, faults)
  return value && { value, ...places(document, at) }
}

function positionAt(lines: LineCounter, offset: number): FilePosition {
  const { line, col } = lines.linePos(offset)
  return line > 0 ? { line, column: col } : FILE_START
}

const startOf = (node: Node | null | undefined): number => node?.range?.[0] ?? 0

function expandScalars(
  document: Document,
  env: EnvironmentVariables,
  fault: (node: Node, message: string) => void,
): void {
  visit(document, {
    Pair: (_, { key }, { length: depth }) =>
      depth === ROOT_DEPTH && isScalar(key) && key.value === 'plugin' ? visit.SKIP : undefined,
    Alias: (_, node) => {
      if (!node.resolve(document)) fault(node, `*${node.source} refers to no &${node.source} above it`)
    },
    Scalar: (key, node) => {
      if (key === 'key' || typeof node.value !== 'string') return
      try {
        node.value = expandReferences(node.value, env)
      } catch (error) {
        fault(node, messageOf(error))
      }
    },
  })
}

// The levels above a pair of the outermost map: the document and that map.
const ROOT_DEPTH = 2

function plainOptions(document: Document, faults: FileFault[]): Record<string, unknown> | null {
  try {
    // The root is a map with string keys: proven before this is called.
    return document.toJS({ maxAliasCount: MAX_ALIASES }) as Record<string, unknown>
  } catch (error) {
    // An alias without an anchor is reported already, at its own place.
    if (faults.length === 0) faults.push({ ...FILE_START, message: `cannot be read: ${messageOf(error)}` })
    return null
  }
}

type YamlPositions = Omit<OperatorYaml, 'value'>

function places(document: Document, at: (offset: number) => FilePosition): YamlPositions {
  const root = document.contents
  const walk = (path: YamlPath): { node: Node | null; depth: number } => {
    let node: Node | null = root
    for (const [depth, step] of path.entries()) {
      const inner = child(document, node, step)
      if (!inner) return { node, depth }
      node = inner
    }
    return { node, depth: path.length }
  }
  return {
    positionOf: (path) => at(startOf(walk(path).node)),
    positionOfKey: (path) => at(startOf(keyNode(document, walk(path.slice(0, -1)).node, path.at(-1)))),
    has: (path) => walk(path).depth === path.length,
    written: (path) => {
      const { node, depth } = walk(path)
      return depth === path.length && isScalar(node) ? node.source : undefined
    },
  }
}

const resolveAlias = (document: Document, node: Node | null): Node | null =>
  isAlias(node) ? (node.resolve(document) ?? null) : node

function child(document: Document, parent: Node | null, step: PropertyKey): ParsedNode | Node | null {
  const collection = resolveAlias(document, parent)
  if (!isCollection(collection)) return null
  const found = collection.get(step, true)
  return isNode(found) ? found : null
}

function keyNode(document: Document, parent: Node | null, key: PropertyKey | undefined): Node | null {
  const map = resolveAlias(document, parent)
  if (!isMap(map)) return map
  const pair = map.items.find((item) => isScalar(item.key) && item.key.value === key)
  return isNode(pair?.key) ? pair.key : map
}
