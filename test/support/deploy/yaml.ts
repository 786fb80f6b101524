import { readFileSync } from 'node:fs'
import { parse, parseAllDocuments } from 'yaml'
import type { Json } from '../gateway.ts'

/** Reads a YAML file, merge keys resolved. A duplicate key throws. */
export const readYaml = (file: string): Json => parse(readFileSync(file, 'utf8'), { merge: true })

/** Reads every document of a YAML text that is not empty. */
export const documentsOf = (text: string): readonly Json[] =>
  parseAllDocuments(text).flatMap((document) => {
    // A list without documents is an object of its own.
    if (!('errors' in document)) return []
    const [error] = document.errors
    if (error) throw error
    return document.toJS() === null ? [] : [document.toJS()]
  })

/** Puts the defaults of `${NAME:-default}` in the place of each variable, as compose does where none is set. */
export const interpolated = (text: string): string => text.replaceAll(/\$\{\w+:-([^}]*)\}/g, '$1')
