function enhanceTables() {}
