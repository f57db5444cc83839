from rote.cli.main import main

main()
