import { posix } from "node:path";
import ts from "typescript";

export interface Import {
  /** As written; null when it is computed at run time. */
  readonly specifier: string | null;
  /** The file it names, where it is relative. */
  readonly target: string | null;
  /** It brings types alone, and is gone at run time. */
  readonly typesOnly: boolean;
}

export interface SourceFile {
  readonly path: string;
  readonly text: string;
  readonly imports: readonly Import[];
  readonly exportsAll: boolean;
  /** Nothing but interfaces, type aliases and imports of types. */
  readonly typesOnly: boolean;
}

export function parse(path: string, text: string): SourceFile {
  const tree = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const imports: Import[] = [];
  const add = (specifier: ts.Expression, typesOnly = false): void => {
    const written = ts.isStringLiteralLike(specifier) ? specifier.text : null;
    const target = written?.startsWith(".") === true ? posix.join(posix.dirname(path), written) : null;
    imports.push({ specifier: written, target, typesOnly });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) add(node.moduleSpecifier, isTypeImport(node.importClause));
    else if (ts.isExportDeclaration(node) && node.moduleSpecifier !== undefined) add(node.moduleSpecifier, isTypeExport(node));
    else if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) add(node.arguments[0]!);
    else if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) add(node.argument.literal, true);
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return {
    path,
    text,
    imports,
    exportsAll: tree.statements.some(
      (node) => ts.isExportDeclaration(node) && (!node.exportClause || ts.isNamespaceExport(node.exportClause)),
    ),
    typesOnly: tree.statements.every(isType),
  };
}

function isTypeImport(clause: ts.ImportClause | undefined): boolean {
  if (clause === undefined) return false;
  if (clause.phaseModifier === ts.SyntaxKind.TypeKeyword) return true;
  const named = clause.namedBindings;
  return clause.name === undefined && named !== undefined && ts.isNamedImports(named) && named.elements.every((name) => name.isTypeOnly);
}

function isTypeExport(node: ts.ExportDeclaration): boolean {
  if (node.isTypeOnly) return true;
  const named = node.exportClause;
  return named !== undefined && ts.isNamedExports(named) && named.elements.every((name) => name.isTypeOnly);
}

function isType(node: ts.Statement): boolean {
  if (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return true;
  if (ts.isImportDeclaration(node)) return isTypeImport(node.importClause);
  return ts.isExportDeclaration(node) && isTypeExport(node);
}
